-- The statements of the design document, as they are there.
SELECT name, role, salary FROM employee
TRAIN regressor.DNN
WITH hidden_units=[10, 100, 20, 5], learning_rate=0.01
INTO my_trained_model;

SELECT name, role FROM testdata
PREDICT testdata.predicted_salary
USING my_trained_model;

-- A real table.
SELECT age, sex, bmi, bp, s1, s2, s3, s4, s5, s6, progression FROM patients
TRAIN regressor.DNN
WITH hidden_units=[10, 100, 20, 5], learning_rate=0.01, train.epoch=20
INTO progression;

SELECT id, age, sex, bmi, bp, s1, s2, s3, s4, s5, s6 FROM new_patients
PREDICT new_patients.predicted_progression
USING progression;

-- The later form of SQLFlow's statements; classes are texts.
SELECT * FROM wines TO TRAIN classifier.DNN WITH train.epoch=30
COLUMN alcohol, malic_acid, ash, "alcalinity.*", magnesium, ".*phenols", flavanoids,
    proanthocyanins, color_intensity, hue, "od280.*", proline
LABEL cultivar INTO cultivars;

SELECT * FROM new_wines TO PREDICT new_wines.predicted_cultivar USING cultivars;
